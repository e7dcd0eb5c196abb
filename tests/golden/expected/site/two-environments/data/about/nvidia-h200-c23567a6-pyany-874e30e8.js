harness.data("about/nvidia-h200-c23567a6-pyany-874e30e8", {
  "epochs": [
    {
      "suite": "matmul",
      "starts": [0],
      "epochs": [0],
      "contexts": [
        {
          "driver": "580.159.04",
          "card": "GPU-ef44157c-5d0e-a3e4-a84f-5fdcc23567a6",
          "method of measuring": "1"
        }
      ]
    }
  ],
  "runs": [],
  "problem_changes": []
}
);
