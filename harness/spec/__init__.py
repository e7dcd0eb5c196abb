"""What is to be measured: suites, problems, kernels, sizes and cases, from a folder or from a commit.

A suite.py runs in a process of its own (`suite_server`). Nothing here touches a device.
"""
