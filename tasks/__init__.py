"""What a job is: stages, rules and formats; must not import ``worker``, read the environment or open a socket."""
