"""Hardware counters that explain why a kernel became slower: our names, NVIDIA's names, and differences by
chip.

NVIDIA's names are those of Nsight Compute and CUPTI. A counter that a chip lacks is left out there.
"""

from __future__ import annotations

from collections.abc import Mapping

STALL = "stalled_"
"""Prefix of stall counters: cycles that warps waited for one reason, summed over warps."""
_REASONS = (
    "barrier",
    "branch_resolving",
    "dispatch_stall",
    "drain",
    "gmma",
    "imc_miss",
    "lg_throttle",
    "long_scoreboard",
    "math_pipe_throttle",
    "membar",
    "mio_throttle",
    "misc",
    "no_instruction",
    "not_selected",
    "selected",
    "short_scoreboard",
    "sleeping",
    "tex_throttle",
    "wait",
)
_BUSY = "pct_of_peak_sustained_elapsed"
_PIPES = ("alu", "fma", "fp64", "xu")

_METRICS: Mapping[str, str] = {
    "cycles": "sm__cycles_active.max",
    "elapsed_cycles": "sm__cycles_elapsed.max",
    "warps": "sm__warps_active.avg.per_cycle_active",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_written_bytes": "dram__bytes_write.sum",
    "dram_busy": f"dram__bytes.sum.{_BUSY}",
    "l2_sectors": "lts__t_sectors.sum",
    "l2_busy": f"lts__t_sectors.sum.{_BUSY}",
    "l2_hit_rate": "lts__t_sector_hit_rate.pct",
    "l1_hit_rate": "l1tex__t_sector_hit_rate.pct",
    "l1_tag_busy": f"l1tex__t_sectors.sum.{_BUSY}",
    "l1_data_busy": f"l1tex__data_pipe_lsu_wavefronts.sum.{_BUSY}",
    "load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "load_bytes": "smsp__sass_data_bytes_mem_global_op_ld.sum",
    "store_bytes": "smsp__sass_data_bytes_mem_global_op_st.sum",
    "async_requests": "smsp__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts.sum",
    "async_sectors": "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts.sum",
    "async_bytes": "smsp__sass_data_bytes_mem_global_op_ldgsts.sum",
    "local_load_requests": "l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum",
    "local_store_requests": "l1tex__t_requests_pipe_lsu_mem_local_op_st.sum",
    "atomic_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum",
    "reduction_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
    "shared_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "shared_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "instructions": "smsp__inst_executed.sum",
    "issue_busy": f"smsp__inst_issued.sum.{_BUSY}",
    "adu_instructions": "smsp__inst_executed_pipe_adu.sum",
    "xu_instructions": "sm__inst_executed_pipe_xu.sum",
    "fp64_instructions": "sm__inst_executed_pipe_fp64.sum",
    "tensor_instructions": "sm__inst_executed_pipe_tensor.sum",
    "tensor_hfma2": "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum",
    "tensor_busy": f"sm__pipe_tensor_cycles_active.avg.{_BUSY}",
    **{f"{pipe}_busy": f"sm__inst_executed_pipe_{pipe}.sum.{_BUSY}" for pipe in _PIPES},
    "warp_cycles": "smsp__warps_active.sum",
    **{STALL + reason: f"smsp__warps_issue_stalled_{reason}.sum" for reason in _REASONS},
}

_NO_DRAM = dict.fromkeys(("dram_read_bytes", "dram_written_bytes", "dram_busy"))
"""Integrated chips share the processor's memory, and have no memory counters."""
_DRAM = {"dram_read_bytes": "dram__bytes_op_read.sum", "dram_written_bytes": "dram__bytes_op_write.sum"}
_NO_HFMA2 = {"tensor_hfma2": None}
"""Chips whose tensor cores do no HFMA2, by which compilers also make constants."""
_OTHERWISE: Mapping[str, Mapping[str, str | None]] = {
    "TU": dict.fromkeys(("stalled_gmma", "async_requests", "async_sectors", "async_bytes", "tensor_hfma2")),
    "GA": {"stalled_gmma": None},
    **dict.fromkeys(("GA102", "GA103", "GA104", "GA106", "GA107"), _NO_HFMA2),
    "AD": {"stalled_gmma": None, **_NO_HFMA2},
    "GB": {"stalled_gmma": None, **_NO_HFMA2, "stalled_imc_miss": None},
    "GB20": _DRAM,
    **dict.fromkeys(("GA10B", "GB10B", "GB10C", "GB20B", "GB20C"), _NO_DRAM),
    "GR": {
        **_DRAM,
        **_NO_HFMA2,
        "stalled_gmma": None,
        "stalled_imc_miss": None,
        "stalled_tex_throttle": None,
    },
}
"""Counters with another name on a chip, by the prefix of the chip's name; None for a missing counter."""


def metrics_of(chip: str) -> dict[str, str]:
    """Return NVIDIA's name of each counter of a chip, such as GH100, by our name."""
    found: dict[str, str | None] = dict(_METRICS)
    for beginning, otherwise in _OTHERWISE.items():
        if chip.startswith(beginning):
            found |= otherwise
    return {name: metric for name, metric in found.items() if metric is not None}
