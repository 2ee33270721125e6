"""Attacks on ourselves: checks that try to see a record where only released sums may be seen."""

from dpsep.audit.neighbours import Neighbour, group_neighbours_of, neighbours_of
from dpsep.audit.replay import Difference, Report, replay

__all__ = ["Difference", "Neighbour", "Report", "group_neighbours_of", "neighbours_of", "replay"]
