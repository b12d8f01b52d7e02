"""All settings, each with its meaning; the only reader of the environment; must not construct adapters."""
