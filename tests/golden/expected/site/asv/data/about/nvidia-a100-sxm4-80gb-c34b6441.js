harness.data("about/nvidia-a100-sxm4-80gb-c34b6441", {
  "epochs": [
    {
      "suite": "matmul",
      "starts": [0, 28],
      "epochs": [0, 1],
      "contexts": [
        {
          "driver": "580.159.04",
          "card": "GPU-1090bcc8-fa19-3ffa-c161-eb8ec34b6441",
          "method of measuring": "1"
        },
        {
          "driver": "590.44.01",
          "card": "GPU-1090bcc8-fa19-3ffa-c161-eb8ec34b6441",
          "method of measuring": "1"
        }
      ]
    }
  ],
  "runs": [],
  "problem_changes": []
}
);
