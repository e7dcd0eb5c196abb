harness.data("sparks/nvidia-a100-sxm4-80gb-c34b6441", {
  "points": 28,
  "values": {
    "t": "u8",
    "d": "////////////1+bvzOfl49vY3v7i2QUDDwASBP///////////xkMFAAWDA7r7f7x8OuZkJKMj40="
  }
}
);
