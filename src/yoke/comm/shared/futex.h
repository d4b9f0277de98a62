// Sleeping on a word that other threads or processes change (Linux futex, shared between processes).
#pragma once

#include <atomic>
#include <cstdint>

namespace yoke::comm::shared {

using Word = std::atomic<uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 4);

// Sleeps while `word` equals `expected`, at most `seconds`. May return early.
void sleep_on(Word& word, uint32_t expected, double seconds);
void wake_all(Word& word);

// Pause instruction for spin loops.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace yoke::comm::shared
