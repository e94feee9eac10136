"""What fairlead costs and what it saves, measured: `python -m bench`.

README.md says what each line of the results means.
"""
