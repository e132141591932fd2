"""The environments, one folder each. Those with a C file are found by the build."""
