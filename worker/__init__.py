"""How a job runs here: processes, adapters, operations; everything that touches the machine."""

__version__ = "0.1.0"
