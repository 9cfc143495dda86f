"""Long experiments, their records, and the tables that are made from them.

``make evidence`` runs each experiment that has no record for the current commit of ``src/``.
``make evidence-NAME`` runs one of them, for at most 60 minutes, and continues where it stopped.
``make evidence-check`` compares the tables in the pages with the records.

A record is ``docs/evidence/NAME.json``. An experiment that is not complete writes
``docs/evidence/partial/NAME.json``, which git ignores, and moves it when the last unit is done.
Below, times are seconds and dates are UTC.

    {
      "experiment": "commits",         NAME, as in `benchmarks.evidence.catalogue`.
      "date": "2026-11-23",            the day, or the first and the last day, of the units.
      "commit": "59b5c47...",          the last commit that changed src/.
      "src_tree": "8a1f...",           git's object id of src/: the same after a rebase.
      "src_modified": false,           true: src/ had uncommitted changes (--trial): not published.
      "complete": true,                whether every planned unit is recorded.
      "seed": 1,                       all random choices of the experiment derive from it. A new
                                       record draws it where the experiment needs fresh seeds.
      "scale": 1.0,                    factor on the amount of work. Published records have 1.0.
      "machine": {"processor": "2 x AMD EPYC", ...},    `benchmarks.machine.description`
      "tuning": {"odradek": {"send buffer": "614400 bytes", ...}, "kafka": {...}},
                                       how each side was set up (`benchmarks.tuning`), or null
                                       if an experiment has no peer.
      "settings": {...},               the settings of the experiment, see below.
      "units": [
        {
          "key": "commits_1/3",        unique: NAME, row, seed or pair, separated by slashes.
          "date": "2026-11-23T08:01:22+00:00",
          "seconds": 31.2,             how long the unit took.
          "load_average": 0.4,         of the machine, before the unit began.
          "values": {...},             raw values: each unit has these or a failure.
          "failure": "..."             the promise that was broken, in one line
        }
      ]
    }

A unit is the smallest piece of work that is recorded. A stop loses at most the one in progress.
Nothing computed is stored: medians, ratios and verdicts are made from the raw values at rendering.

Records of paired rows (`benchmarks.evidence.paired`) have these ``settings``.

    {"pairs": 9, "more_pairs": 9,
     "rows": {"commits_1": {"title": "...", "metrics": {"rate": "commits/s"}}}}

A group has ``pairs`` units, and ``more_pairs`` further ones if a target lies between the quartiles
of the first ones. The ``values`` of the unit ``GROUP/PAIR`` have the metrics of one run for each
row of the group and each broker. If a load keeps the time of each record, ``histogram_us`` counts
the times.

    {"commits_1": {"odradek": {"rate": 40968.0, "histogram_us": {"99": 12, "101": 3}},
                   "kafka": {"rate": 6615.0, ...}}}

A row without a peer has the name of the compared program in the position of ``kafka``.

The record of `benchmarks.evidence.simulations` keeps the units of earlier commits. Its ``values``
are those of one batch of seeds.

    {"commit": "...", "src_commit": "...", "src_tree": "...",    the checkout, and its src/
     "brokers": 3, "replicas": 3, "load": "nominal", "first": 1000000, "runs": 25,
     "simulated_s": 3105.2, "cpu_s": 52.9, "traces": "...",      a hash over the traces of all runs
     "coverage": {"operations": 6012, ...}, "violations": {"1000007": "the first one of the run"}}
"""
