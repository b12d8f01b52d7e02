"""The operators' and developers' commands; they print, and use only what ``worker.bootstrap`` builds."""
