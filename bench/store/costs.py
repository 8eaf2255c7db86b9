"""What tokens cost: points beside dated prices. Prices are read when a query asks for them and never lie in the database: what
was measured and what was assumed are never in one column.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bench.catalog.prices import FILE, read_prices
from bench.store.database import temp_table

if TYPE_CHECKING:
    import duckdb

OWN_FILE = "prices.yaml"
"""In a results folder: taken instead of the one that comes with `bench`."""
COST_VIEWS = ("device_prices", "power_prices", "costs")
_TABLES = {
    "device_prices": {"device": "VARCHAR", "usd_per_device_hour": "DOUBLE", "since": "DATE", "source": "VARCHAR"},
    "power_prices": {
        "region": "VARCHAR",
        "usd_per_kwh": "DOUBLE",
        "gco2_per_kwh": "DOUBLE",
        "since": "DATE",
        "source": "VARCHAR",
    },
}
_COSTS = """
WITH priced AS (
  SELECT p.*, d.usd_per_device_hour, d.since AS price_since, d.source AS price_source
  FROM points p LEFT JOIN device_prices d
    ON len(list_distinct(p.devices)) = 1 AND regexp_full_match(p.devices[1], d.device, 'i') AND d.since <= p.night
  QUALIFY row_number() OVER (PARTITION BY run_id, case_id, role, config_id, host_id ORDER BY d.since DESC NULLS LAST) = 1
)
SELECT p.* EXCLUDE (usd_per_device_hour, price_since, price_source), w.region,
  usd_per_device_hour * device_count / (output_tok_per_s * 3600 / 1e6) AS usd_per_mtok,
  output_tok_per_s / (usd_per_device_hour * device_count) AS tok_per_s_per_usd_hour,
  usd_per_device_hour, price_since, price_source,
  j_per_output_tok * 1e6 / 3.6e6 AS kwh_per_mtok,
  j_per_output_tok * 1e6 / 3.6e6 * w.usd_per_kwh AS power_usd_per_mtok,
  j_per_output_tok * 1e6 / 3.6e6 * w.gco2_per_kwh AS gco2_per_mtok,
  w.usd_per_kwh, w.gco2_per_kwh, w.since AS power_since, w.source AS power_source
FROM priced p LEFT JOIN power_prices w ON w.since <= p.night
QUALIFY row_number() OVER (PARTITION BY run_id, case_id, role, config_id, host_id, w.region ORDER BY w.since DESC) = 1
"""


def cost_views(con: duckdb.DuckDBPyConnection, results: Path) -> None:
    """Tables of prices, and the view `costs` over them, for one connection. Raises: UsageError (a price file that is none)."""
    own = results / OWN_FILE
    prices = read_prices(own if own.exists() else FILE)
    entries = {"device_prices": prices.devices, "power_prices": prices.power}
    for name, columns in _TABLES.items():
        temp_table(con, name, columns, entries[name])
    con.execute(f"CREATE TEMP VIEW costs AS {_COSTS}")
