"""The paper's divide and conquer: sub-problems, their votes, and the anchors that these choose."""
