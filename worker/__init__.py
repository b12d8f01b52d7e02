"""How a job runs here: processes, adapters, operations; everything that touches the machine."""
