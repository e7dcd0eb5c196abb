harness.data("at/nvidia-h200-c23567a6-py3-13-71504083/0", {
  "first": 0,
  "rows": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39],
  "cases": {
    "t": "u32",
    "n": 2,
    "first": 0,
    "step": 1
  },
  "values": {
    "t": "f32",
    "d": "+ouxRkMiJ0eTs7FGWi8nRz34sUb/ECdHZReyRtg7J0dRILJGnUMoRyutsUauuyZHDvOwRuEXJ0fZYLFG+UUnR6NksUZAayZHrDyxRrviJ0fqR6BGca4mR9D4n0bwyydHyTKgRkcyJ0f/XJ9Gjh8nR+T1n0YR4SdHmnOfRih6J0dwy6BG/Cs4R8VNn0bdZDdHi4GfRjTZN0fbwJ5GBiw3R1F5oEa+LDhH0vufRsgpOEfp1Z9GDQ84R6Mtn0b5njhHLo2SRuVDKUe/nZJGqWApR5XokkbeAylHR8GSRsYyKUffMpNGecEpR5IHk0a4nChHNnWTRghmKUdIB5RGlXEpR/EhlEY1UClHRH6TRlP8KUfmn5NG+gApRzw6k0ZvoihH2refRiDdN0cBCaBGEG04R49cn0Ye/DZH846fRv8pN0c="
  },
  "built": [
    [10, 0, "registers", 104.0, 112.0]
  ]
}
);
