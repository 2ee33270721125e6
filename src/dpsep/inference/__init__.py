"""How the posterior moves: one file an algorithm, each with its state, info, init and step."""
