"""The knowledge base's file formats, text in and text out: no I/O, no Git, no decisions about a job."""
