"""The conformance suite, installed as `fairlead.conformance`: what the public specifications demand of a library, as pytest cases.

`fairlead conformance LIBRARY` runs it. See README.md beside this file for how it is made and how a case is written.
"""
