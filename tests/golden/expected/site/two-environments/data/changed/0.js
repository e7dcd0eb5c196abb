harness.data("changed/0", {
  "changes": {
    "count": 13,
    "keys": ["id", "card", "case", "kind", "state", "attribution", "before", "after", "effect", "low", "high", "p_value", "cycles_effect", "clock_before", "clock_after", "good", "bad", "commits", "good_hash", "bad_hash", "subject", "author", "time", "static", "shifts", "compared", "triage", "epoch"],
    "columns": [
      ["c894c93071", "47c0facbfe", "b50dd0fdab", "81ba1384f1", "8bab2b5ad2", "007985b189", "f606260cb8", "518817aa16", "e38e1cec41", "73134ee5b8", "d3bc09935f", "b681f23d91", "38a84fe1aa"],
      {
        "of": [1, 2, 0],
        "at": "AAEAAAEBAAABAQABAg=="
      },
      {
        "of": [0, 1],
        "at": "AAABAAEAAQABAAEBAQ=="
      },
      {
        "of": ["regression", "environment", "improvement"],
        "at": "AAABAQEBAQEBAQICAg=="
      },
      {
        "of": ["new", ""],
        "at": "AAABAQEBAQEBAQEBAQ=="
      },
      {
        "of": ["code", "thermal"],
        "at": "AAABAQEBAQEBAQAAAA=="
      },
      [22733.2, 22733.2, 43327.5, 18847.4, 43327.5, 18847.4, 47091.6, 20453.7, 47091.6, 20453.7, 42822.9, 42822.9, 12468.8],
      [20454.0, 20454.0, 47004.2, 20437.3, 47004.2, 20437.3, 43327.7, 18846.6, 43327.7, 18846.6, 47090.0, 47090.0, 13698.8],
      [-0.100256, -0.100256, 0.0848574, 0.0843552, 0.0848574, 0.0843552, -0.0799287, -0.0785765, -0.0799287, -0.0785765, 0.0996457, 0.0996457, 0.0986428],
      [-0.105595, -0.105595, 0.0781567, 0.0759551, 0.0781567, 0.0759551, -0.0838219, -0.0847739, -0.0838219, -0.0847739, 0.0946943, 0.0946943, 0.091885],
      [-0.0948853, -0.0948853, 0.0915996, 0.0928209, 0.0915996, 0.0928209, -0.0760189, -0.0723372, -0.0760189, -0.0723372, 0.104619, 0.104619, 0.105442],
      [2.08507e-16, 2.08507e-16, 2.20516e-05, 2.20516e-05, 2.20516e-05, 2.20516e-05, 8.38014e-10, 7.168e-19, 8.38014e-10, 7.168e-19, 9.79956e-11, 9.79956e-11, 2.18324e-16],
      [0.111427, 0.111427, 0.00201199, 0.00222283, 0.00201199, 0.00222283, -0.000911486, -0.00187374, -0.000911486, -0.00187374, -0.0906162, -0.0906162, -0.0901088],
      [1980.0, 1980.0, 1821.0, 1821.0, 1821.0, 1821.0, 1981.0, 1980.0, 1981.0, 1980.0, 1981.0, 1981.0, 1410.0],
      [1980.0, 1980.0, 1979.5, 1979.0, 1979.5, 1979.0, 1821.0, 1821.0, 1821.0, 1821.0, 1981.0, 1981.0, 1409.5],
      [9, 9, 35, 35, 35, 35, 23, 23, 23, 23, 15, 15, 15],
      [10, 10, 36, 36, 36, 36, 24, 24, 24, 24, 16, 16, 16],
      {
        "of": [1],
        "at": "AAAAAAAAAAAAAAAAAA=="
      },
      ["1d27b824df7778c60f8ae26318748e79dabceb56", "1d27b824df7778c60f8ae26318748e79dabceb56", "81284fde8a0f76d4ac492247d0930d4e4dd8ad2c", "81284fde8a0f76d4ac492247d0930d4e4dd8ad2c", "81284fde8a0f76d4ac492247d0930d4e4dd8ad2c", "81284fde8a0f76d4ac492247d0930d4e4dd8ad2c", "dc09e5a7891fbdd1768af465e03bb7105fc39e5d", "dc09e5a7891fbdd1768af465e03bb7105fc39e5d", "dc09e5a7891fbdd1768af465e03bb7105fc39e5d", "dc09e5a7891fbdd1768af465e03bb7105fc39e5d", "8f78e022af2476eb28611673dae2f8f95886db0a", "8f78e022af2476eb28611673dae2f8f95886db0a", "8f78e022af2476eb28611673dae2f8f95886db0a"],
      ["99dd49e62ae4afd30ee79b1336de899f19c47b36", "99dd49e62ae4afd30ee79b1336de899f19c47b36", "5f8182bf2f74f71fe0f3df05afd83c46f6f46c7d", "5f8182bf2f74f71fe0f3df05afd83c46f6f46c7d", "5f8182bf2f74f71fe0f3df05afd83c46f6f46c7d", "5f8182bf2f74f71fe0f3df05afd83c46f6f46c7d", "88f62a14f629bf31cdffbddcbf81f27e428c5ed4", "88f62a14f629bf31cdffbddcbf81f27e428c5ed4", "88f62a14f629bf31cdffbddcbf81f27e428c5ed4", "88f62a14f629bf31cdffbddcbf81f27e428c5ed4", "bac6890d9c5862f619fd069d312b46b927d1b161", "bac6890d9c5862f619fd069d312b46b927d1b161", "bac6890d9c5862f619fd069d312b46b927d1b161"],
      ["naive: unroll the inner loop", "naive: unroll the inner loop", "Tidy up imports", "Tidy up imports", "Tidy up imports", "Tidy up imports", "naive: load four numbers at a time", "naive: load four numbers at a time", "naive: load four numbers at a time", "naive: load four numbers at a time", "tiled: unroll the inner loop", "tiled: unroll the inner loop", "tiled: unroll the inner loop"],
      ["build robot", "build robot", "Dora Szabó", "Dora Szabó", "Dora Szabó", "Dora Szabó", "Ada Jansen", "Ada Jansen", "Ada Jansen", "Ada Jansen", "Chidi Okafor", "Chidi Okafor", "Chidi Okafor"],
      [1641369098, 1641369098, 1641678391, 1641678391, 1641678391, 1641678391, 1641491425, 1641491425, 1641491425, 1641491425, 1641415660, 1641415660, 1641415660],
      {
        "of": [
          ["registers 104 → 112"],
          []
        ],
        "at": "AAABAQEBAQEBAQEBAQ=="
      },
      [
        [],
        [],
        [],
        [],
        [],
        [],
        [],
        [],
        [],
        [],
        [],
        [],
        []
      ],
      {
        "of": [false],
        "at": "AAAAAAAAAAAAAAAAAA=="
      },
      {
        "of": [null],
        "at": "AAAAAAAAAAAAAAAAAA=="
      },
      {
        "of": [0],
        "at": "AAAAAAAAAAAAAAAAAA=="
      }
    ]
  },
  "events": [
    {
      "id": "99dd49e62a",
      "kind": "regression",
      "state": "new",
      "cause": "code",
      "good": 9,
      "bad": 10,
      "good_hash": "1d27b824df7778c60f8ae26318748e79dabceb56",
      "bad_hash": "99dd49e62ae4afd30ee79b1336de899f19c47b36",
      "accused": 10,
      "commits": 1,
      "loose": 0,
      "likely": 1,
      "suspects": [
        {
          "position": 10,
          "hash": "99dd49e62ae4afd30ee79b1336de899f19c47b36",
          "subject": "naive: unroll the inner loop",
          "author": "build robot",
          "time": 1641369098
        }
      ],
      "cards": [1, 2],
      "cases": 1,
      "changes": 2,
      "worst": {
        "id": "c894c93071",
        "card": 1,
        "case": 0,
        "series": "s0db875a9c196",
        "kind": "regression",
        "state": "new",
        "attribution": "code",
        "before": 22733.2,
        "after": 20454.0,
        "effect": -0.100256,
        "low": -0.105595,
        "high": -0.0948853,
        "p_value": 2.08507e-16,
        "cycles_effect": 0.111427,
        "clock_before": 1980.0,
        "clock_after": 1980.0,
        "good": 9,
        "bad": 10,
        "commits": 1,
        "good_hash": "1d27b824df7778c60f8ae26318748e79dabceb56",
        "bad_hash": "99dd49e62ae4afd30ee79b1336de899f19c47b36",
        "subject": "naive: unroll the inner loop",
        "author": "build robot",
        "time": 1641369098,
        "static": ["registers 104 → 112"],
        "shifts": [],
        "compared": false,
        "triage": null,
        "fixed_by": null,
        "sentence": "11.1 % slower (+10.5 to +11.8 %): cycles changed by +11.1 %: the code. Registers 104 → 112.",
        "epoch": 0
      },
      "brief": {
        "count": 2,
        "keys": ["card", "case", "state", "id", "kind", "effect", "low", "high"],
        "columns": [
          [1, 2],
          [0, 0],
          ["new", "new"],
          ["c894c93071", "47c0facbfe"],
          ["regression", "regression"],
          [-0.100256, -0.100256],
          [-0.105595, -0.105595],
          [-0.0948853, -0.0948853]
        ]
      }
    },
    {
      "id": "f21a964a41",
      "kind": "environment",
      "state": "",
      "cause": "card",
      "good": 35,
      "bad": 36,
      "good_hash": "81284fde8a0f76d4ac492247d0930d4e4dd8ad2c",
      "bad_hash": "5f8182bf2f74f71fe0f3df05afd83c46f6f46c7d",
      "accused": null,
      "commits": 1,
      "loose": 0,
      "likely": 1,
      "suspects": [
        {
          "position": 36,
          "hash": "5f8182bf2f74f71fe0f3df05afd83c46f6f46c7d",
          "subject": "Tidy up imports",
          "author": "Dora Szabó",
          "time": 1641678391
        }
      ],
      "cards": [1],
      "cases": 2,
      "changes": 2,
      "worst": {
        "id": "b50dd0fdab",
        "card": 1,
        "case": 1,
        "series": "s6702f5ef8a1e",
        "kind": "environment",
        "state": "",
        "attribution": "thermal",
        "before": 43327.5,
        "after": 47004.2,
        "effect": 0.0848574,
        "low": 0.0781567,
        "high": 0.0915996,
        "p_value": 2.20516e-05,
        "cycles_effect": 0.00201199,
        "clock_before": 1821.0,
        "clock_after": 1979.5,
        "good": 35,
        "bad": 36,
        "commits": 1,
        "good_hash": "81284fde8a0f76d4ac492247d0930d4e4dd8ad2c",
        "bad_hash": "5f8182bf2f74f71fe0f3df05afd83c46f6f46c7d",
        "subject": "Tidy up imports",
        "author": "Dora Szabó",
        "time": 1641678391,
        "static": [],
        "shifts": [],
        "compared": false,
        "triage": null,
        "fixed_by": null,
        "sentence": "7.82 % faster (-8.39 to -7.25 %): the SM clock moved with the temperature and cycles did not: the card, not the code.",
        "epoch": 0
      },
      "brief": {
        "count": 2,
        "keys": ["card", "case", "state", "id", "kind", "effect", "low", "high"],
        "columns": [
          [1, 1],
          [1, 0],
          ["", ""],
          ["b50dd0fdab", "81ba1384f1"],
          ["environment", "environment"],
          [0.0848574, 0.0843552],
          [0.0781567, 0.0759551],
          [0.0915996, 0.0928209]
        ]
      }
    },
    {
      "id": "44c6520301",
      "kind": "environment",
      "state": "",
      "cause": "card",
      "good": 35,
      "bad": 36,
      "good_hash": "81284fde8a0f76d4ac492247d0930d4e4dd8ad2c",
      "bad_hash": "5f8182bf2f74f71fe0f3df05afd83c46f6f46c7d",
      "accused": null,
      "commits": 1,
      "loose": 0,
      "likely": 1,
      "suspects": [
        {
          "position": 36,
          "hash": "5f8182bf2f74f71fe0f3df05afd83c46f6f46c7d",
          "subject": "Tidy up imports",
          "author": "Dora Szabó",
          "time": 1641678391
        }
      ],
      "cards": [2],
      "cases": 2,
      "changes": 2,
      "worst": {
        "id": "8bab2b5ad2",
        "card": 2,
        "case": 1,
        "series": "sdad1f79abdaf",
        "kind": "environment",
        "state": "",
        "attribution": "thermal",
        "before": 43327.5,
        "after": 47004.2,
        "effect": 0.0848574,
        "low": 0.0781567,
        "high": 0.0915996,
        "p_value": 2.20516e-05,
        "cycles_effect": 0.00201199,
        "clock_before": 1821.0,
        "clock_after": 1979.5,
        "good": 35,
        "bad": 36,
        "commits": 1,
        "good_hash": "81284fde8a0f76d4ac492247d0930d4e4dd8ad2c",
        "bad_hash": "5f8182bf2f74f71fe0f3df05afd83c46f6f46c7d",
        "subject": "Tidy up imports",
        "author": "Dora Szabó",
        "time": 1641678391,
        "static": [],
        "shifts": [],
        "compared": false,
        "triage": null,
        "fixed_by": null,
        "sentence": "7.82 % faster (-8.39 to -7.25 %): the SM clock moved with the temperature and cycles did not: the card, not the code.",
        "epoch": 0
      },
      "brief": {
        "count": 2,
        "keys": ["card", "case", "state", "id", "kind", "effect", "low", "high"],
        "columns": [
          [2, 2],
          [1, 0],
          ["", ""],
          ["8bab2b5ad2", "007985b189"],
          ["environment", "environment"],
          [0.0848574, 0.0843552],
          [0.0781567, 0.0759551],
          [0.0915996, 0.0928209]
        ]
      }
    },
    {
      "id": "5aadcb3ef6",
      "kind": "environment",
      "state": "",
      "cause": "card",
      "good": 23,
      "bad": 24,
      "good_hash": "dc09e5a7891fbdd1768af465e03bb7105fc39e5d",
      "bad_hash": "88f62a14f629bf31cdffbddcbf81f27e428c5ed4",
      "accused": null,
      "commits": 1,
      "loose": 0,
      "likely": 1,
      "suspects": [
        {
          "position": 24,
          "hash": "88f62a14f629bf31cdffbddcbf81f27e428c5ed4",
          "subject": "naive: load four numbers at a time",
          "author": "Ada Jansen",
          "time": 1641491425
        }
      ],
      "cards": [1],
      "cases": 2,
      "changes": 2,
      "worst": {
        "id": "f606260cb8",
        "card": 1,
        "case": 1,
        "series": "s6702f5ef8a1e",
        "kind": "environment",
        "state": "",
        "attribution": "thermal",
        "before": 47091.6,
        "after": 43327.7,
        "effect": -0.0799287,
        "low": -0.0838219,
        "high": -0.0760189,
        "p_value": 8.38014e-10,
        "cycles_effect": -0.000911486,
        "clock_before": 1981.0,
        "clock_after": 1821.0,
        "good": 23,
        "bad": 24,
        "commits": 1,
        "good_hash": "dc09e5a7891fbdd1768af465e03bb7105fc39e5d",
        "bad_hash": "88f62a14f629bf31cdffbddcbf81f27e428c5ed4",
        "subject": "naive: load four numbers at a time",
        "author": "Ada Jansen",
        "time": 1641491425,
        "static": [],
        "shifts": [],
        "compared": false,
        "triage": null,
        "fixed_by": null,
        "sentence": "8.69 % slower (+8.23 to +9.15 %): the SM clock moved with the temperature and cycles did not: the card, not the code.",
        "epoch": 0
      },
      "brief": {
        "count": 2,
        "keys": ["card", "case", "state", "id", "kind", "effect", "low", "high"],
        "columns": [
          [1, 1],
          [1, 0],
          ["", ""],
          ["f606260cb8", "518817aa16"],
          ["environment", "environment"],
          [-0.0799287, -0.0785765],
          [-0.0838219, -0.0847739],
          [-0.0760189, -0.0723372]
        ]
      }
    },
    {
      "id": "494a1e1aaa",
      "kind": "environment",
      "state": "",
      "cause": "card",
      "good": 23,
      "bad": 24,
      "good_hash": "dc09e5a7891fbdd1768af465e03bb7105fc39e5d",
      "bad_hash": "88f62a14f629bf31cdffbddcbf81f27e428c5ed4",
      "accused": null,
      "commits": 1,
      "loose": 0,
      "likely": 1,
      "suspects": [
        {
          "position": 24,
          "hash": "88f62a14f629bf31cdffbddcbf81f27e428c5ed4",
          "subject": "naive: load four numbers at a time",
          "author": "Ada Jansen",
          "time": 1641491425
        }
      ],
      "cards": [2],
      "cases": 2,
      "changes": 2,
      "worst": {
        "id": "e38e1cec41",
        "card": 2,
        "case": 1,
        "series": "sdad1f79abdaf",
        "kind": "environment",
        "state": "",
        "attribution": "thermal",
        "before": 47091.6,
        "after": 43327.7,
        "effect": -0.0799287,
        "low": -0.0838219,
        "high": -0.0760189,
        "p_value": 8.38014e-10,
        "cycles_effect": -0.000911486,
        "clock_before": 1981.0,
        "clock_after": 1821.0,
        "good": 23,
        "bad": 24,
        "commits": 1,
        "good_hash": "dc09e5a7891fbdd1768af465e03bb7105fc39e5d",
        "bad_hash": "88f62a14f629bf31cdffbddcbf81f27e428c5ed4",
        "subject": "naive: load four numbers at a time",
        "author": "Ada Jansen",
        "time": 1641491425,
        "static": [],
        "shifts": [],
        "compared": false,
        "triage": null,
        "fixed_by": null,
        "sentence": "8.69 % slower (+8.23 to +9.15 %): the SM clock moved with the temperature and cycles did not: the card, not the code.",
        "epoch": 0
      },
      "brief": {
        "count": 2,
        "keys": ["card", "case", "state", "id", "kind", "effect", "low", "high"],
        "columns": [
          [2, 2],
          [1, 0],
          ["", ""],
          ["e38e1cec41", "73134ee5b8"],
          ["environment", "environment"],
          [-0.0799287, -0.0785765],
          [-0.0838219, -0.0847739],
          [-0.0760189, -0.0723372]
        ]
      }
    },
    {
      "id": "bac6890d9c",
      "kind": "improvement",
      "state": "",
      "cause": "code",
      "good": 15,
      "bad": 16,
      "good_hash": "8f78e022af2476eb28611673dae2f8f95886db0a",
      "bad_hash": "bac6890d9c5862f619fd069d312b46b927d1b161",
      "accused": 16,
      "commits": 1,
      "loose": 0,
      "likely": 1,
      "suspects": [
        {
          "position": 16,
          "hash": "bac6890d9c5862f619fd069d312b46b927d1b161",
          "subject": "tiled: unroll the inner loop",
          "author": "Chidi Okafor",
          "time": 1641415660
        }
      ],
      "cards": [0, 1, 2],
      "cases": 1,
      "changes": 3,
      "worst": {
        "id": "d3bc09935f",
        "card": 1,
        "case": 1,
        "series": "s6702f5ef8a1e",
        "kind": "improvement",
        "state": "",
        "attribution": "code",
        "before": 42822.9,
        "after": 47090.0,
        "effect": 0.0996457,
        "low": 0.0946943,
        "high": 0.104619,
        "p_value": 9.79956e-11,
        "cycles_effect": -0.0906162,
        "clock_before": 1981.0,
        "clock_after": 1981.0,
        "good": 15,
        "bad": 16,
        "commits": 1,
        "good_hash": "8f78e022af2476eb28611673dae2f8f95886db0a",
        "bad_hash": "bac6890d9c5862f619fd069d312b46b927d1b161",
        "subject": "tiled: unroll the inner loop",
        "author": "Chidi Okafor",
        "time": 1641415660,
        "static": [],
        "shifts": [],
        "compared": false,
        "triage": null,
        "fixed_by": null,
        "sentence": "9.06 % faster (-9.47 to -8.65 %): cycles changed by -9.06 %: the code.",
        "epoch": 0
      },
      "brief": {
        "count": 3,
        "keys": ["card", "case", "state", "id", "kind", "effect", "low", "high"],
        "columns": [
          [1, 2, 0],
          [1, 1, 1],
          ["", "", ""],
          ["d3bc09935f", "b681f23d91", "38a84fe1aa"],
          ["improvement", "improvement", "improvement"],
          [0.0996457, 0.0996457, 0.0986428],
          [0.0946943, 0.0946943, 0.091885],
          [0.104619, 0.104619, 0.105442]
        ]
      }
    }
  ]
}
);
