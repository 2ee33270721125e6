"""Pictures of fits, and the page of a run."""
