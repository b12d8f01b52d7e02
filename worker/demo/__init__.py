"""What the demo and the tests run against: a real git server on loopback; no product code may import it."""
