harness.data("site", {
  "schema": 2,
  "generated_at": "<generated_at>",
  "harness_version": "<version>",
  "project": "synthetic",
  "commit_url": "https://example.invalid/commit/{}",
  "suites": [],
  "pair": {
    "errors": 3.29,
    "level": 0.999,
    "floor": 0.01
  },
  "asv": false,
  "commits": {
    "count": 40,
    "chunk": 128,
    "every": 64,
    "days": {
      "t": "u32",
      "n": 7,
      "first": 18995,
      "step": 1
    },
    "firsts": {
      "t": "u32",
      "first": 0,
      "steps": "BAMKCAYH"
    },
    "newest": {
      "hash": "e912142fe116ec7fd7ac373bd19cbf46ab233c72",
      "time": 1641718887,
      "subject": "Changelog"
    }
  },
  "cards": [
    {
      "file": "nvidia-a100-sxm4-80gb-c34b6441",
      "name": "nvidia-a100-sxm4-80gb-c34b6441",
      "gpu": "NVIDIA A100-SXM4-80GB",
      "host": "AMD EPYC 9354 32-Core Processor",
      "driver": "590.44.01",
      "kind": "gpu",
      "newest": {
        "commit": 39,
        "hash": "e912142fe116ec7fd7ac373bd19cbf46ab233c72",
        "measured_at": "",
        "cases": 2,
        "failed": 0
      },
      "points": 76,
      "calibration": null,
      "open": 0,
      "unjudged": 0,
      "unknown": 0,
      "series": 2,
      "stale": false,
      "health": [
        {
          "level": "warning",
          "text": "Not calibrated: run 'harness calibrate' on it once."
        }
      ]
    },
    {
      "file": "nvidia-h200-c23567a6",
      "name": "nvidia-h200-c23567a6",
      "gpu": "NVIDIA H200",
      "host": "AMD EPYC 9354 32-Core Processor",
      "driver": "580.159.04",
      "kind": "gpu",
      "newest": {
        "commit": 39,
        "hash": "e912142fe116ec7fd7ac373bd19cbf46ab233c72",
        "measured_at": "",
        "cases": 2,
        "failed": 0
      },
      "points": 80,
      "calibration": null,
      "open": 1,
      "unjudged": 0,
      "unknown": 0,
      "series": 2,
      "stale": false,
      "health": [
        {
          "level": "warning",
          "text": "Not calibrated: run 'harness calibrate' on it once."
        }
      ]
    }
  ],
  "series_a_file": 16,
  "cases": {
    "count": 2,
    "keys": ["name", "suite", "kernel", "size", "metric", "unit", "direction", "order"],
    "columns": [
      ["matmul.naive@1024", "matmul.tiled@1024"],
      ["matmul", "matmul"],
      ["naive", "tiled"],
      ["1024", "1024"],
      ["gflops", "gflops"],
      ["GFLOP/s", "GFLOP/s"],
      ["higher", "higher"],
      [0, 1]
    ]
  },
  "series": {
    "count": 4,
    "keys": ["file", "card", "case", "at", "last", "effect_90", "floor", "noise", "changes", "open", "unjudged"],
    "columns": [
      ["sdba9eaeb5200", "sa376e33f45f1", "sc289fec4f630", "secf400402adb"],
      [0, 0, 1, 1],
      [0, 1, 0, 1],
      {
        "of": [39],
        "at": "AAAAAA=="
      },
      [6354.43, 13178.9, 20423.5, 46890.0],
      [0.0, 0.0, -0.101, 0.0976],
      {
        "of": [0.01],
        "at": "AAAAAA=="
      },
      [0.00264, 0.00294, 0.0031, 0.00276],
      [0, 1, 3, 3],
      [null, null, -0.1, null],
      {
        "of": [null],
        "at": "AAAAAA=="
      }
    ]
  },
  "counts": {
    "new": 1,
    "acknowledged": 0,
    "expired": 0,
    "fixed": 0,
    "unjudged": 0,
    "stale": 0,
    "improvement": 2,
    "environment": 4,
    "change": 0
  },
  "events": {
    "new": 1,
    "acknowledged": 0,
    "expired": 0,
    "fixed": 0,
    "unjudged": 0,
    "stale": 0,
    "improvement": 1,
    "environment": 2,
    "change": 0
  },
  "problems": [],
  "unrecorded": ["nvidia-a100-sxm4-80gb-c34b6441: Only asv's files hold 76 results of suites: 'harness import asv' makes records of them.", "nvidia-h200-c23567a6: Only asv's files hold 80 results of suites: 'harness import asv' makes records of them."]
}
);
