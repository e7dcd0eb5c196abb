harness.data("sparks/nvidia-a100-sxm4-80gb-c34b6441", {
  "points": 28,
  "values": {
    "t": "u8",
    "d": "//////////9ugItigX+DfHRvdpx8cXp4hnSKef//////////EwUGABAFCgjr7f7x8Ov98/bw8/E="
  }
}
);
