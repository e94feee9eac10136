"""`fairlead doctor`: what is on this machine, what is wrong with it, and what to do."""
