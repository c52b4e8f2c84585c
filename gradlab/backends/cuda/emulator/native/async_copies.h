// Copies from global into shared memory that go on in the background: cp.async, and CUDA's __pipeline_memcpy_async.
//
// They land as late as they may: when their thread awaits them. Until then nobody may touch where they go to (a fault, where accesses are
// checked; else there are bytes of 0xff), their source may not change, and no thread may return. The accesses are made here, in the program,
// so that checks of bounds and of races see them: what is overwritten when the copy begins, and what is written when it lands.
#ifndef GRADLAB_EMULATOR_ASYNC_COPIES_H
#define GRADLAB_EMULATOR_ASYNC_COPIES_H

namespace gradlab_emulator {

struct Landing {
    char* to;
    unsigned bytes;
    uint32_t words[4];
};

void copy_begins(Site site, const void* to, const void* from, unsigned bytes, unsigned taken);  // the launch fails where they may not be these
void copy_begun(Site site, const Landing& landing, const void* from, unsigned taken);
void copies_committed();             // those since the last call are a group
void copies_awaited(unsigned most);  // all groups but the last `most` land
bool next_landing(Landing& landing);

// `bytes` bytes, of which the last `zeros` are zeros and not read.
inline void copy_async(Site site, void* to, const void* from, unsigned bytes, unsigned zeros = 0) {
    Landing landing{static_cast<char*>(to), bytes, {0, 0, 0, 0}};
    const unsigned taken = zeros < bytes ? bytes - zeros : 0;
    copy_begins(site, to, from, bytes, taken);
    for (unsigned i = 0; i < taken / 4; ++i) landing.words[i] = static_cast<const uint32_t*>(from)[i];
    for (unsigned i = taken / 4 * 4; i < taken; ++i)
        landing.words[i / 4] |= uint32_t(static_cast<const unsigned char*>(from)[i]) << 8 * (i % 4);
    for (unsigned i = 0; i < bytes / 4; ++i) static_cast<uint32_t*>(to)[i] = 0xffffffffu;
    copy_begun(site, landing, from, taken);
    interrupt();
}
inline void await_copies(unsigned most) {
    interrupt();
    copies_awaited(most);
    Landing landing;
    while (next_landing(landing))
        for (unsigned i = 0; i < landing.bytes / 4; ++i) reinterpret_cast<uint32_t*>(landing.to)[i] = landing.words[i];
}

}  // namespace gradlab_emulator

#endif
