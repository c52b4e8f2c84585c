// How Python calls a kernel and learns its parameters.
#ifndef GRADLAB_EMULATOR_SIGNATURE_H
#define GRADLAB_EMULATOR_SIGNATURE_H

namespace gradlab_emulator {

// The dtype's name of a C++ type; cuda_fp16.h and cuda_bf16.h of this folder add theirs.
template <class T, class = void> struct TypeName { static constexpr const char* value = "struct"; };
template <> struct TypeName<void> { static constexpr const char* value = "void"; };
template <> struct TypeName<bool> { static constexpr const char* value = "bool"; };
template <> struct TypeName<float> { static constexpr const char* value = "float32"; };
template <> struct TypeName<double> { static constexpr const char* value = "float64"; };
template <class T> struct TypeName<T, std::enable_if_t<std::is_enum<T>::value || (std::is_integral<T>::value && !std::is_same<T, bool>::value)>> {
    static constexpr bool negative = T(-1) < T(0);
    static constexpr const char* value = sizeof(T) == 1 ? (negative ? "int8" : "uint8")
                                       : sizeof(T) == 2 ? (negative ? "int16" : "uint16")
                                       : sizeof(T) == 4 ? (negative ? "int32" : "uint32") : (negative ? "int64" : "uint64");
};

template <class... Parameters, size_t... indices>
inline void call(void (*kernel)(Parameters...), void** values, std::index_sequence<indices...>) {
    kernel(*static_cast<std::remove_reference_t<Parameters>*>(values[indices])...);
}
template <class... Parameters>
inline void call(void (*kernel)(Parameters...), void** values) {
    call(kernel, values, std::index_sequence_for<Parameters...>{});
}

template <class T>
inline int describe_one(char* text, size_t room) {
    using Target = std::remove_pointer_t<T>;
    const bool pointer = std::is_pointer<T>::value, constant = pointer && std::is_const<Target>::value;
    return snprintf(text, room, "%s%s%s %d\n", constant ? "const " : "", TypeName<std::remove_cv_t<Target>>::value, pointer ? "*" : "", int(sizeof(T)));
}
// One line for each parameter: "const float32* 8".
template <class... Parameters>
inline void describe(void (*)(Parameters...), char* text, size_t room) {
    size_t used = 0;
    text[0] = 0;
    ((used += size_t(describe_one<Parameters>(text + used, room - used))), ...);
}

}  // namespace gradlab_emulator

#define GRADLAB_EXPORT(index, ...)                                                                                     \
    extern "C" __attribute__((visibility("default"))) void gradlab_call_##index(void** values) {                       \
        ::gradlab_emulator::call(&__VA_ARGS__, values);                                                                \
    }                                                                                                                  \
    extern "C" __attribute__((visibility("default"))) void gradlab_describe_##index(char* text, size_t room) {         \
        ::gradlab_emulator::describe(&__VA_ARGS__, text, room);                                                        \
    }

#endif
