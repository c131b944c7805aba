"""Captures a program: its windows, the lines that ran, and what ran on the device for each."""
