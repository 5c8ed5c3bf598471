"""A world for the controller: GitHub, EC2, machines, a store and the time, as adapters of its ports.

It plays an explicit schedule of jobs and faults and draws no chance of its own: the same schedule
is the same world, event for event. It never looks into the controller to decide what happens.
"""
