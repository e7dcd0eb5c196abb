// Runs the threads of some warps of one block, and prints what each request of a warp touches.
//
// The kernel is compiled with -fsanitize=thread, for which the compiler calls a function at each read and write
// of memory. These are the functions: in place of looking for races they note addresses.
//
// Arguments: the grid, the block and the block's index, three numbers each; how many warps; then of each
// array its bytes. Of each place in the program that reads or writes an array, prints: which array (-1 is
// shared memory), whether it writes, bytes of a thread, the lowest offset, the requests of all warps, and
// of them, as far as they were looked at: how many, their sectors, and their wavefronts over the fewest.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <vector>
#include <sys/mman.h>

struct harness_extent { unsigned x, y, z; };
extern "C" harness_extent threadIdx, blockIdx, blockDim, gridDim;
harness_extent threadIdx, blockIdx, blockDim, gridDim;
extern "C" void harness_call(void** arrays);
extern "C" char __start_harness_shared[] __attribute__((weak));
extern "C" char __stop_harness_shared[] __attribute__((weak));
// As much as any card has, for arrays whose size a launch gives.
extern "C" __attribute__((section("harness_shared"), aligned(128), used)) char harness_dynamic_shared[256 * 1024] = {1};

namespace {

constexpr unsigned LANES = 32, SECTOR = 32, WORD = 4, BANKS = 32;
constexpr size_t LOOKED_AT = 256;  // requests of one place in one warp: patterns repeat

struct Place {
    int array = 0;
    bool writes = false;
    unsigned bytes = 0;
    uint64_t lowest = ~0ull, executed[LANES] = {};
    std::vector<uint64_t> offsets[LANES];
    uint64_t requests = 0, looked_at = 0, sectors = 0;
    double wavefronts = 0;
};

struct Array { uint64_t begin, end; };
std::vector<Array> arrays;
std::map<std::pair<uint64_t, bool>, Place> places;
unsigned lane;
bool running = false;

void note(uint64_t where, void* pointer, unsigned bytes, bool writes)
{
    if (!running)
        return;
    const uint64_t address = (uint64_t)pointer, shared = (uint64_t)__start_harness_shared;
    int array = -1;
    uint64_t begin = shared;
    if (address < shared || address >= (uint64_t)__stop_harness_shared) {
        for (array = (int)arrays.size() - 1; array >= 0; --array)
            if (address >= arrays[array].begin && address < arrays[array].end)
                break;
        if (array < 0)
            return;  // a thread's own variable
        begin = arrays[array].begin;
    }
    Place& place = places[{where, writes}];
    place.array = array, place.writes = writes, place.bytes = bytes;
    place.lowest = std::min(place.lowest, address - begin);
    if (place.executed[lane]++ < LOOKED_AT)
        place.offsets[lane].push_back(address - begin);
}

// Lanes that are at a place for the same time ask together. Shared memory serves 128 bytes in a wavefront: of
// wider requests 16 or 8 lanes at a time, of each bank one word.
void look(Place& place)
{
    size_t most = 0;
    for (auto& offsets : place.offsets)
        most = std::max(most, offsets.size());
    const unsigned together = std::min(LANES, BANKS * WORD / std::max(place.bytes, WORD));
    for (size_t request = 0; request < most; ++request) {
        std::set<uint64_t> sectors;
        unsigned wavefronts = 0, fewest = 0;
        for (unsigned first = 0; first < LANES; first += together) {
            std::map<unsigned, std::set<uint64_t>> banks;
            size_t deepest = 0;
            for (unsigned i = first; i < first + together; ++i)
                if (request < place.offsets[i].size()) {
                    const uint64_t begin = place.offsets[i][request], end = begin + place.bytes - 1;
                    for (uint64_t sector = begin / SECTOR; sector <= end / SECTOR; ++sector)
                        sectors.insert(sector);
                    for (uint64_t word = begin / WORD; word <= end / WORD; ++word) {
                        auto& words = banks[word % BANKS];
                        words.insert(word);
                        deepest = std::max(deepest, words.size());
                    }
                }
            wavefronts += deepest;
            fewest += deepest > 0;
        }
        place.sectors += sectors.size();
        place.wavefronts += (double)wavefronts / fewest;
    }
    place.looked_at += most;
    place.requests += *std::max_element(place.executed, place.executed + LANES);
    for (unsigned i = 0; i < LANES; ++i)
        place.offsets[i].clear(), place.executed[i] = 0;
}

}  // namespace

#define WHERE ((uint64_t)__builtin_return_address(0))
#define ACCESS(bytes) \
    void __tsan_read##bytes(void* p) { note(WHERE, p, bytes, false); } \
    void __tsan_write##bytes(void* p) { note(WHERE, p, bytes, true); } \
    void __tsan_unaligned_read##bytes(void* p) { note(WHERE, p, bytes, false); } \
    void __tsan_unaligned_write##bytes(void* p) { note(WHERE, p, bytes, true); }
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_read_range(void* p, size_t bytes) { note(WHERE, p, (unsigned)bytes, false); }
void __tsan_write_range(void* p, size_t bytes) { note(WHERE, p, (unsigned)bytes, true); }
ACCESS(1) ACCESS(2) ACCESS(4) ACCESS(8) ACCESS(16)
}

int main(int count, char** given)
{
    unsigned extents[10];
    for (int i = 0; i < 10; ++i)
        extents[i] = (unsigned)strtoul(given[i + 1], nullptr, 10);
    gridDim = {extents[0], extents[1], extents[2]};
    blockDim = {extents[3], extents[4], extents[5]};
    blockIdx = {extents[6], extents[7], extents[8]};
    std::vector<void*> pointers;
    for (int i = 11; i < count; ++i) {
        const size_t bytes = strtoull(given[i], nullptr, 10);
        // Untouched pages cost nothing. Zeros all: what is read is never looked at.
        void* array = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (array == MAP_FAILED)
            return perror("mmap"), 1;
        pointers.push_back(array);
        arrays.push_back({(uint64_t)array, (uint64_t)array + bytes});
    }

    const unsigned threads = blockDim.x * blockDim.y * blockDim.z, warps = (threads + LANES - 1) / LANES;
    const unsigned looked_at = std::min(warps, extents[9]);
    for (unsigned i = 0; i < looked_at; ++i) {
        const unsigned first = i * warps / looked_at * LANES;
        for (lane = 0; lane < LANES && first + lane < threads; ++lane) {
            const unsigned thread = first + lane;
            threadIdx = {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / blockDim.x / blockDim.y};
            running = true;
            harness_call(pointers.data());
            running = false;
        }
        for (auto& [key, place] : places)
            look(place);
    }
    for (auto& [key, place] : places)
        printf("%d %d %u %llu %llu %llu %llu %.6f\n", place.array, place.writes, place.bytes,
               (unsigned long long)place.lowest, (unsigned long long)place.requests,
               (unsigned long long)place.looked_at, (unsigned long long)place.sectors, place.wavefronts);
}
