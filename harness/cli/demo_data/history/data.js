window.BENCHMARK_DATA = {
 "repoUrl": "https://github.com/JuliaGPU/CUDA.jl",
 "entries": {
  "CUDA.jl Benchmarks": [
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "cda93c5294dc6162ff46e00bb33d67f4c80e2f4e",
     "distinct": true,
     "message": "Fix typo in docs.\n\n[skip tests]",
     "id": "668b79c6378aa9443faf27d1efa3c117e0701077",
     "timestamp": "2024-03-17T09:50:23+01:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/668b79c6378aa9443faf27d1efa3c117e0701077"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 16133
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2517610.5
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3108666
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3700568
     }
    ],
    "date": 1710665423000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Zentrik",
      "username": "Zentrik",
      "email": "Zentrik@users.noreply.github.com"
     },
     "tree_id": "09830ea887dba6287a4d576969bad9982f22e74d",
     "distinct": true,
     "message": "Fix typo in performance tips (#2294)\n\n[skip tests]",
     "id": "890fb04de1050557a6fabc7a2618456f5edc5b5c",
     "timestamp": "2024-03-19T06:48:46+00:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/890fb04de1050557a6fabc7a2618456f5edc5b5c"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 16172
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2509724
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3104422
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3698919.5
     }
    ],
    "date": 1710830926000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "d18f36e1f6568747b0742af402da0818a1d6d35e",
     "distinct": true,
     "message": "Make it possible to customize the CuIterator adaptor. (#2297)\n\n",
     "id": "682999899f0a7e4a2fafc2c65a1959648fcf5b7c",
     "timestamp": "2024-03-20T17:37:19+01:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/682999899f0a7e4a2fafc2c65a1959648fcf5b7c"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 16241
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2522646
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3130724
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3700772
     }
    ],
    "date": 1710952639000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "efe941c6bc139d11e23262361cac5ea70cf09f96",
     "distinct": true,
     "message": "Avoid OOMs during OOM handling. (#2299)\n\n",
     "id": "a50b5b8a7833e6a81fa46fddef1175537df6e54f",
     "timestamp": "2024-03-21T10:38:44+01:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/a50b5b8a7833e6a81fa46fddef1175537df6e54f"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 16704
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2522855
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3115927
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3689679.5
     }
    ],
    "date": 1711013924000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "\u0141ukasz Pawela",
      "username": "lpawela",
      "email": "3093117+lpawela@users.noreply.github.com"
     },
     "tree_id": "15c002289217ae41da9eecbf75362a4c0b30393b",
     "distinct": true,
     "message": "Set default buffer size in `CUSPARSE` `mm!` functions (#2298)\n\nThis works around a bug in CUSPARSE.\r\n\r\nCo-authored-by: Alexis Montoison <35051714+amontoison@users.noreply.github.com>",
     "id": "ad5ddf8202142ec5fcf52205f2025c94c4eb4ca1",
     "timestamp": "2024-03-21T14:08:35+01:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/ad5ddf8202142ec5fcf52205f2025c94c4eb4ca1"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 15906.999999999998
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2511481
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3106741.5
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3696725
     }
    ],
    "date": 1711026515000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Alexis Montoison",
      "username": "amontoison",
      "email": "35051714+amontoison@users.noreply.github.com"
     },
     "tree_id": "cd401a0b42f36e76d5b9471e029e1a0610aa4e38",
     "distinct": true,
     "message": "[CUSOLVER] Add tests for geqrf, orgqr and ormqr (#2300)\n\n",
     "id": "f5100a1f86eb8cf5bc018275a614db15327fa43e",
     "timestamp": "2024-03-22T03:48:58-04:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/f5100a1f86eb8cf5bc018275a614db15327fa43e"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 16005.999999999998
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2519302.5
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3117006
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3704334
     }
    ],
    "date": 1711093738000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "Alexis Montoison",
      "username": "amontoison",
      "email": "35051714+amontoison@users.noreply.github.com"
     },
     "author": {
      "name": "Alexis Montoison",
      "username": "amontoison",
      "email": "alexis.montoison@polymtl.ca"
     },
     "tree_id": "d0d873f96c67898598a6a8d0657b1f9ba652dbd9",
     "distinct": true,
     "message": "Only test larft! with a recent version of CUSOLVER\n",
     "id": "7455671678aa530151ce42bb927a7656503f0d81",
     "timestamp": "2024-03-22T12:50:18-04:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/7455671678aa530151ce42bb927a7656503f0d81"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 16062.999999999998
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2529435
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3116656
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3695672
     }
    ],
    "date": 1711678382000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "575ee501ca07ce66ffdac900be2b6f9edf281210",
     "distinct": true,
     "message": "Fix RNG determinism when using wrapped arrays. (#2307)\n\n",
     "id": "d6dd9b171d2300811e719289829b8e41259ed0d7",
     "timestamp": "2024-03-29T14:25:16+01:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/d6dd9b171d2300811e719289829b8e41259ed0d7"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26462
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2524451
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3115458
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3695052
     }
    ],
    "date": 1711718716000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "932f691c4adbe2c96145ef3fff1c4276ff5423d1",
     "distinct": true,
     "message": "Don't invoke the GC when profiling.\n\nThis makes profiling runs potentially ridiculously expensive.\n",
     "id": "c30ede91927d436a0826a437d1ca17b2c7d67582",
     "timestamp": "2024-03-30T10:55:25+01:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/c30ede91927d436a0826a437d1ca17b2c7d67582"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26769
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2528748
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3120782.5
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3696533
     }
    ],
    "date": 1711792525000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "Alexis Montoison",
      "username": "amontoison",
      "email": "35051714+amontoison@users.noreply.github.com"
     },
     "author": {
      "name": "Alexis Montoison",
      "username": "amontoison",
      "email": "alexis.montoison@polymtl.ca"
     },
     "tree_id": "8e22715457a79c8b59001fc08698cabb12a483ff",
     "distinct": true,
     "message": "[CUSPARSE] Add a method convert for the type cusparseSpSMUpdate_t\n",
     "id": "3561f7352f6830ac00c7c73bd2e8893e79a15ff8",
     "timestamp": "2024-04-01T17:04:17-04:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/3561f7352f6830ac00c7c73bd2e8893e79a15ff8"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26489
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2503600
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3134172
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3700538
     }
    ],
    "date": 1712012855000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Alexis Montoison",
      "username": "amontoison",
      "email": "35051714+amontoison@users.noreply.github.com"
     },
     "tree_id": "2896fc784f0df0cde012c84f42b13de7280b56a7",
     "distinct": true,
     "message": "[CUBLAS] Interface gemm_grouped_batched (#2310)\n\nOnly on CUDA 12.4+",
     "id": "7f725c0a117c2ba947015f48833630605501fb3a",
     "timestamp": "2024-04-02T10:20:55-04:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/7f725c0a117c2ba947015f48833630605501fb3a"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26722
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2522099
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3124683
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3701911.5
     }
    ],
    "date": 1712067655000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "c9a6f8fe48e4ccde9eca3b383d542262295cf8c5",
     "distinct": true,
     "message": "Clarify debug level hint. (#2316)\n\n",
     "id": "977177f04502a20f12322ef8a91e4b059dd11eea",
     "timestamp": "2024-04-05T11:49:07+02:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/977177f04502a20f12322ef8a91e4b059dd11eea"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26761
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2528749
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3127802
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3695494
     }
    ],
    "date": 1712310547000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Alex Ellison",
      "username": "xaellison",
      "email": "aellison@voltus.co"
     },
     "tree_id": "c16fbcaa1327566671b6fc1f6343eccfe7793e9a",
     "distinct": true,
     "message": "Sorting: sortperm(; dims) and bitonic partialsort (#2308)\n\n",
     "id": "b3e1bdf2b44a55bfc4bddb61b73f9fb775386de6",
     "timestamp": "2024-04-09T08:58:13-04:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/b3e1bdf2b44a55bfc4bddb61b73f9fb775386de6"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26615
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2925106
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3526757
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1081068
     }
    ],
    "date": 1712667493000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "42206a7874886bc7b4fd1834afe502077253a5cd",
     "distinct": true,
     "message": "Merge pull request #2291 from JuliaGPU/tb/julia_1.11\n\nTowards supporting Julia 1.11",
     "id": "7734190d5dfe19ec830d93b8333d15b9daaeca40",
     "timestamp": "2024-04-09T17:08:51+02:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/7734190d5dfe19ec830d93b8333d15b9daaeca40"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 27254
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2926541
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3520689
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1070575
     }
    ],
    "date": 1712675331000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "1b95523adaf19fbe4724bbf707f0e9cca7f735e7",
     "distinct": true,
     "message": "Adapt to JuliaLang/julia#53687.\n",
     "id": "1e5f0d6de865b1bf44c6c2f667b8db3f82bc2a3e",
     "timestamp": "2024-04-09T17:18:18+02:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/1e5f0d6de865b1bf44c6c2f667b8db3f82bc2a3e"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26776
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2911421
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3525773
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1071821
     }
    ],
    "date": 1712675898000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Lucas C Wilcox",
      "username": "lcw",
      "email": "lucas@swirlee.com"
     },
     "tree_id": "3dcab8a2c18ca319ea15a41d90e9528b8e93894a",
     "distinct": true,
     "message": "Inline `Base.throw_boundserror` quirk (#2314)\n\nThis avoid capturing `Array`s in `BoundsError`. This avoids requiring a device allocation for MArray due to bounds-checking.",
     "id": "5da4d1d0355432758b3a50c0fed1a365d8f5e403",
     "timestamp": "2024-04-10T11:16:50-07:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/5da4d1d0355432758b3a50c0fed1a365d8f5e403"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26734
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2911629
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3518049
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1072276
     }
    ],
    "date": 1712773010000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Jesse Chan",
      "username": "jlchan",
      "email": "1156048+jlchan@users.noreply.github.com"
     },
     "tree_id": "326ae3ce3e0b5c1093c3932890955e7245478338",
     "distinct": true,
     "message": "Add some installation tips to docs/README.md (#2326)\n\n[skip tests]",
     "id": "ed767b694abaa69fa449f194c42ed6ad7a1e9da4",
     "timestamp": "2024-04-15T13:30:37-05:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/ed767b694abaa69fa449f194c42ed6ad7a1e9da4"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26430
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2914746
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3517162
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1069224
     }
    ],
    "date": 1713205837000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "96fad44637bc083c54895a18ace4b444c1da0628",
     "distinct": true,
     "message": "Work around CUPTI bug on CUDA 12.4 Update 1.\n",
     "id": "0f5ec3a95fc20f2cf62c73ee1ae1e95dfe8e3740",
     "timestamp": "2024-04-16T10:09:22+02:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/0f5ec3a95fc20f2cf62c73ee1ae1e95dfe8e3740"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26837
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2903171
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3498179
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1063078
     }
    ],
    "date": 1713254962000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "c0f3ca657b56ec419b62b03e89dbbdb799efe31d",
     "distinct": true,
     "message": "Add header for cublasLt. (#2324)\n\nAlso significantly shorten the API listings\r\nby using a template mechanism.",
     "id": "1a57e9f78c201aecd59490b50a14fff1665e2e10",
     "timestamp": "2024-04-16T12:41:47+02:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/1a57e9f78c201aecd59490b50a14fff1665e2e10"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26552
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2918046.5
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3508975
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1072190
     }
    ],
    "date": 1713264107000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Alexis Montoison",
      "username": "amontoison",
      "email": "35051714+amontoison@users.noreply.github.com"
     },
     "tree_id": "08fda27f908ff1783858f091cfd5c68dd7865ff1",
     "distinct": true,
     "message": "[CUSOLVER] Fix the dispatch for syevd! end heevd! (#2309)\n\n",
     "id": "545ffa2001feba20fb55a4bc123c14db0204570f",
     "timestamp": "2024-04-16T06:47:01-04:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/545ffa2001feba20fb55a4bc123c14db0204570f"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26409
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2898027.5
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3510905
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1070067
     }
    ],
    "date": 1713264421000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "7b95c93d79cb9df3fb130758d621aa729051620b",
     "distinct": true,
     "message": "Diagnose kernel limits on launch failure. (#2329)\n\n",
     "id": "a011e73c375728fbf7a997a648d7c40a6607958a",
     "timestamp": "2024-04-16T12:59:58+02:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/a011e73c375728fbf7a997a648d7c40a6607958a"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 28808
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2909736
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3513009
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1069662
     }
    ],
    "date": 1713265198000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "af88f82e0efda0cf437fa5da7d46310115dd0af0",
     "distinct": true,
     "message": "Work around a CUPTI bug in CUDA 12.4 Update 1. (#2330)\n\n",
     "id": "9c24777ad8809bb04383fde6812eab08015bd39a",
     "timestamp": "2024-04-16T14:25:01+02:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/9c24777ad8809bb04383fde6812eab08015bd39a"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26657
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2919426.5
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3517871
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1067777
     }
    ],
    "date": 1713270301000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Vedant Puri",
      "username": "vpuri3",
      "email": "vedantpuri@gmail.com"
     },
     "tree_id": "b1547e2e1606a9b05003ad363b881c2fd438e0da",
     "distinct": true,
     "message": "Fix broadcast defaulting to Mem.Unified() (#2327)\n\nCo-authored-by: Tim Besard <tim.besard@gmail.com>",
     "id": "c5fcd73e541ead68a7b952f16e15d52b6066a63c",
     "timestamp": "2024-04-16T08:25:21-04:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/c5fcd73e541ead68a7b952f16e15d52b6066a63c"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26989
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2913209
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3519796
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1076225
     }
    ],
    "date": 1713270321000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "dd1c682b372b6791b69f6823afe364fc92a0146c",
     "distinct": true,
     "message": "Bump version.",
     "id": "9c9a05f5b7fe44bf8c87c703a0648a0a57513856",
     "timestamp": "2024-04-19T08:59:28+02:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/9c9a05f5b7fe44bf8c87c703a0648a0a57513856"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26659
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2909820
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3510863
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1066534
     }
    ],
    "date": 1713509968000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "1cbc097e504a6874214562cd70ee7e653170c352",
     "distinct": true,
     "message": "Merge pull request #2304 from JuliaGPU/tb/maybe_collect\n\nConsider running GC when allocating and synchronizing",
     "id": "7e07ecca131ae5dbb38bd7a35061fc9e79b74548",
     "timestamp": "2024-04-22T09:38:57+02:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/7e07ecca131ae5dbb38bd7a35061fc9e79b74548"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26809
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2920444
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3512550
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1076994
     }
    ],
    "date": 1713771537000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "e6c9bc377bd224757a516e859dc97bb5b024295c",
     "distinct": true,
     "message": "Fix mabye_collect with disabled memory pool.\n",
     "id": "cc25b246af11c51b5d85e389208c7cc39094e7ad",
     "timestamp": "2024-04-22T12:01:12+00:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/cc25b246af11c51b5d85e389208c7cc39094e7ad"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26798
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2903157.5
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3509382
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1061810
     }
    ],
    "date": 1713787272000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Valentin Churavy",
      "username": "vchuravy",
      "email": "vchuravy@users.noreply.github.com"
     },
     "tree_id": "57a9c4072bc909c212dc82cafc74d810a94acd86",
     "distinct": true,
     "message": "Add EnzymeCore extension for parent_job (#2281)\n\n\r\nCo-authored-by: Tim Besard <tim.besard@gmail.com>",
     "id": "6b82b3e47a3b2ec47d98481b3b6c6c87483c718b",
     "timestamp": "2024-04-22T14:54:10-04:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/6b82b3e47a3b2ec47d98481b3b6c6c87483c718b"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26742
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2901826.5
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3515505
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1062193
     }
    ],
    "date": 1713812050000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "1e4ed3e36ce03615221d71ad523f5bfd4265c259",
     "distinct": true,
     "message": "Test examples without spawning processes.\n",
     "id": "787a71f1354579642f56692f7dc4356b7636e978",
     "timestamp": "2024-04-22T21:27:59+02:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/787a71f1354579642f56692f7dc4356b7636e978"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26783
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2916512.5
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3509816.5
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1070367
     }
    ],
    "date": 1713814079000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "e345efc18ceefe9cbca572fbbc1ebb71e059e3a7",
     "distinct": true,
     "message": "Disable the GC during graph capture.\n\nIt cannot handle asynchronous frees.\n",
     "id": "4ba63218f3e6892c94731dfda1889f6ded53b4f0",
     "timestamp": "2024-04-22T22:01:59+02:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/4ba63218f3e6892c94731dfda1889f6ded53b4f0"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26814
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2910152
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3505108
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1072586
     }
    ],
    "date": 1713816119000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "6dc5353cac6808d5cc19028b2726466416fae8e2",
     "distinct": true,
     "message": "Auto-detect external profilers. (#2339)\n\n",
     "id": "1d39a636e846f42dcf0e241f87325806de0322ef",
     "timestamp": "2024-04-23T20:37:12+02:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/1d39a636e846f42dcf0e241f87325806de0322ef"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26535
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2913797.5
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3516541
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1075515
     }
    ],
    "date": 1713897432000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "efe9e9d20203b5a230b28e64799f3b9e33d9b6d2",
     "distinct": true,
     "message": "Refactor memory wrappers (#2335)\n\nThis commit significantly reworks the CUDA.jl memory wrappers.\r\n\r\nThe low-level driver wrappers have been moved out of the Mem submodule,\r\nand for consistency with Base the Buffer name has been replaced by\r\nMemory. This is mostly an NFC change, and deprecations have been added\r\nto make this non-breaking.\r\n\r\nThe high-level wrappers have been changed to to introduce a Managed\r\nlayer, i.e., CuArray now container a `DataRef` (from GPUArrays, for\r\nrefcounting), which contains a new `Managed`, which contains an\r\n`AbstractMemory` subtype. The purpose of the `Managed` struct is to keep\r\ntrack of the state of the memory, specifically, which stream has last\r\nmodified it, and whether there's outstanding asynchronous operations.\r\nThis information is used synchronize the memory when deriving a pointer,\r\nmaking it possible to avoid explicit synchronization in many cases\r\n(notably, when switching tasks or devices).\r\n\r\nSadly, this approach is not water-tight, notably, when memory is\r\ncaptured (e.g. as part of a CUDA graph) we may not hit the pointer\r\nderivation path and thus fail to synchronize. Explicit synchronization\r\nis still required here, or an explicit copy to CPU memory (in which case\r\nCUDA.jl will always synchronize).\r\n\r\nAs part of this change, several bugs and other minor issues were\r\ndiscovered and fixed. Refer to the GitHub PR for an un-squashed version\r\nof these changes for more details.",
     "id": "eb45b2c1c6b5d24f39c0e045198eba389f51405b",
     "timestamp": "2024-04-24T10:21:07+02:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/eb45b2c1c6b5d24f39c0e045198eba389f51405b"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26794
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2919200
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3513417
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1076326
     }
    ],
    "date": 1713946867000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "04c702e335feca008026aaf1e296bec9f0faa01d",
     "distinct": true,
     "message": "Skip memcpy_async test under compute-sanitizer.\n\nSomehow it occasionally fails.\n",
     "id": "ad9e0cc526b3ddcf7c5cbc825274a3b4ec236004",
     "timestamp": "2024-04-24T11:28:58+02:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/ad9e0cc526b3ddcf7c5cbc825274a3b4ec236004"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26930
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2898539
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3485384
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1070659
     }
    ],
    "date": 1713950938000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "56c5c17d450550199fc3b860e9389638a8e6fca1",
     "distinct": true,
     "message": "Fix performance of indexing unified memory. (#2340)\n\n",
     "id": "cc4980cc9b0d2690fb5dfc85677e9c35128afd25",
     "timestamp": "2024-04-24T14:14:47+02:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/cc4980cc9b0d2690fb5dfc85677e9c35128afd25"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26810
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2902543
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3502399
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1079956
     }
    ],
    "date": 1713960887000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "GitHub",
      "username": "web-flow",
      "email": "noreply@github.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "22ac1a68fe461266399291ce04911641b3175cda",
     "distinct": true,
     "message": "Merge pull request #2342 from JuliaGPU/tb/exception_output\n\nImprove exception output",
     "id": "5dd6bb2f3a68c36dbd4dc8d0f9cabc6dcd11d00b",
     "timestamp": "2024-04-25T11:37:28+02:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/5dd6bb2f3a68c36dbd4dc8d0f9cabc6dcd11d00b"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26839
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2921537
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3522007
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1088683
     }
    ],
    "date": 1714037848000,
    "tool": "julia"
   },
   {
    "commit": {
     "committer": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "author": {
      "name": "Tim Besard",
      "username": "maleadt",
      "email": "tim.besard@gmail.com"
     },
     "tree_id": "6e8c43fa212fd35153f5f04d53e6de32f4cccaf0",
     "distinct": true,
     "message": "Fix #2343.\n",
     "id": "6659669068521f5dbaa3516909e449b04c8cbf16",
     "timestamp": "2024-04-25T16:20:00+02:00",
     "url": "https://github.com/JuliaGPU/CUDA.jl/commit/6659669068521f5dbaa3516909e449b04c8cbf16"
    },
    "benches": [
     {
      "name": "array/random/rand!/Int64",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 26800
     },
     {
      "name": "array/sorting/1d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 2901424
     },
     {
      "name": "array/sorting/by",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 3498135
     },
     {
      "name": "array/sorting/2d",
      "extra": "Julia 1.10",
      "unit": "ns",
      "value": 1072673
     }
    ],
    "date": 1714054803000,
    "tool": "julia"
   }
  ]
 },
 "lastUpdate": 1744793303764
}
