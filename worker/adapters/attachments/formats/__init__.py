"""One module a file format, run only inside the child process; must import nothing of the product and no pydantic."""
