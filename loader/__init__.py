"""What every API needs, and Unified Runtime and PI from a plugin's name to a call.

base/ is shared by all APIs. ur/ and pi/ are one API each. trace/ records and prints calls.
"""
