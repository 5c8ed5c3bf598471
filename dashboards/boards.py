"""All dashboards, in the order of their importance."""

from dashboards.controller import CONTROLLER
from dashboards.github import GITHUB
from dashboards.overview import OVERVIEW
from dashboards.sku import SKU

BOARDS = (OVERVIEW, SKU, GITHUB, CONTROLLER)
