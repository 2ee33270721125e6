"""Settings of fits from public numbers, forecasts of what they will give, and the planner."""
