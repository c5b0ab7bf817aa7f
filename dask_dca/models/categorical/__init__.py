"""Hidden Markov models whose frames are symbols."""
