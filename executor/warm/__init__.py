"""Processes that begin at once, since they are forked from one that has imported what they need.

- `serving`: the warm process;
- `processes`: the agent's side, which starts it, and asks it to fork.
"""
