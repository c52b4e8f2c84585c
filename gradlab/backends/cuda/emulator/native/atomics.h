// Atomic functions, cached loads and stores, fences. Atomics are relaxed, as CUDA's: they order no other memory.
#ifndef GRADLAB_EMULATOR_ATOMICS_H
#define GRADLAB_EMULATOR_ATOMICS_H

namespace gradlab_emulator {

template <size_t bytes> struct Word;
template <> struct Word<2> { using type = uint16_t; };
template <> struct Word<4> { using type = uint32_t; };
template <> struct Word<8> { using type = uint64_t; };

template <class T> struct Same { using type = T; };
template <class T> using same = typename Same<T>::type;  // takes no part in deducing T

template <class T, class Change>
inline T update(T* address, Change change) {
    using Bits = typename Word<sizeof(T)>::type;
    interrupt();
    if (reinterpret_cast<uintptr_t>(address) % sizeof(T)) trap("atomic access to a misaligned address", "", 0);
    Bits* word = reinterpret_cast<Bits*>(address);
    Bits before = __atomic_load_n(word, __ATOMIC_RELAXED), after;
    do after = bits_as<Bits>(T(change(bits_as<T>(before))));
    while (!__atomic_compare_exchange_n(word, &before, after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return bits_as<T>(before);
}

}  // namespace gradlab_emulator

// For the device, a block, and the system: to the emulator these are one.
#define GRADLAB_ATOMIC(name, result)                                                     \
    template <class T>                                                                   \
    inline T name(T* address, ::gradlab_emulator::same<T> value) {                       \
        return ::gradlab_emulator::update(address, [&](T old) -> T { return result; });  \
    }
#define GRADLAB_ATOMICS(name, result) \
    GRADLAB_ATOMIC(name, result) GRADLAB_ATOMIC(name##_block, result) GRADLAB_ATOMIC(name##_system, result)
GRADLAB_ATOMICS(atomicAdd, old + value)
GRADLAB_ATOMICS(atomicSub, old - value)
GRADLAB_ATOMICS(atomicExch, ((void)old, value))
GRADLAB_ATOMICS(atomicMax, old < value ? value : old)
GRADLAB_ATOMICS(atomicMin, value < old ? value : old)
GRADLAB_ATOMICS(atomicAnd, old & value)
GRADLAB_ATOMICS(atomicOr, old | value)
GRADLAB_ATOMICS(atomicXor, old ^ value)
GRADLAB_ATOMICS(atomicInc, old >= value ? T(0) : T(old + 1))
GRADLAB_ATOMICS(atomicDec, old == T(0) || old > value ? value : T(old - 1))
#undef GRADLAB_ATOMICS
#undef GRADLAB_ATOMIC

template <class T>
inline T atomicCAS(T* address, ::gradlab_emulator::same<T> compare, ::gradlab_emulator::same<T> value) {
    return ::gradlab_emulator::update(address, [&](T old) -> T { return memcmp(&old, &compare, sizeof old) == 0 ? T(value) : old; });
}
template <class T>
inline T atomicCAS_block(T* address, ::gradlab_emulator::same<T> compare, ::gradlab_emulator::same<T> value) {
    return atomicCAS(address, compare, value);
}
template <class T>
inline T atomicCAS_system(T* address, ::gradlab_emulator::same<T> compare, ::gradlab_emulator::same<T> value) {
    return atomicCAS(address, compare, value);
}

// Cache hints change nothing here.
template <class T> inline T __ldg(const T* address) { return *address; }
template <class T> inline T __ldcg(const T* address) { return *address; }
template <class T> inline T __ldca(const T* address) { return *address; }
template <class T> inline T __ldcs(const T* address) { return *address; }
template <class T> inline T __ldlu(const T* address) { return *address; }
template <class T> inline T __ldcv(const T* address) { return *address; }
template <class T> inline void __stwb(T* address, ::gradlab_emulator::same<T> value) { *address = value; }
template <class T> inline void __stcg(T* address, ::gradlab_emulator::same<T> value) { *address = value; }
template <class T> inline void __stcs(T* address, ::gradlab_emulator::same<T> value) { *address = value; }
template <class T> inline void __stwt(T* address, ::gradlab_emulator::same<T> value) { *address = value; }

inline void __threadfence() { ::gradlab_emulator::fence(); }
inline void __threadfence_block() { ::gradlab_emulator::fence(); }
inline void __threadfence_system() { ::gradlab_emulator::fence(); }
inline void __nanosleep(unsigned) { ::gradlab_emulator::interrupt(); }
inline long long clock64() { return ::gradlab_emulator::ticks(); }

#endif
