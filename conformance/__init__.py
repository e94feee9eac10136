"""The conformance suite, installed as `fairlead.conformance`.

Its pytest cases test what the public specifications demand of a library. `fairlead conformance
LIBRARY` runs them. README.md beside this file says how the suite is made and how a case is written.
"""
