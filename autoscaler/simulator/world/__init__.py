"""A simulated world for the controller: GitHub, EC2, machines, a store and the clock, behind its ports.

The world plays a schedule of jobs and faults and draws no random numbers, so the same schedule always
produces the same events. It does not read the controller's state to decide what happens.
"""
