harness.data("about/nvidia-a100-sxm4-80gb-c34b6441", {
  "epochs": [
    {
      "suite": "matmul",
      "starts": [0],
      "epochs": [0],
      "contexts": [
        {
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
