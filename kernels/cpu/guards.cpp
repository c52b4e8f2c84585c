// Conditions of a compiled program, tested without the interpreter: this object's attribute, or its entry under this key, is the very object
// that it was when the program was traced. Called with the interpreter's lock held. What is false here is for Python to decide.
#include <cstdint>

// Functions of the interpreter, handed over by it: no headers of Python's are needed, and no library to link.
struct Python {
  void* (*attribute)(void* object, void* name);
  void* (*item)(void* object, void* key);
  void* (*entry)(void* dict, void* key);        // whose reference stays the dict's
  void* (*element)(void* list, int64_t index);  // and the list's
  int64_t (*size)(void* object);
  void (*release)(void* object);
  void (*forget)();  // the exception that was raised
};

enum Kind : int64_t { ATTRIBUTE, ITEM, ENTRY, ELEMENT, WORD, SIZE };

struct Watch {
  Kind kind;
  void* object;
  void* name;  // or an index, the number of a word of the object, a size
  void* expected;
};

struct Watches {
  const Python* python;
  const Watch* first;
  int64_t count;
};

// 1 if all hold.
extern "C" int64_t gradlab_watch(const Watches* all) {
  const Python& python = *all->python;
  for (const Watch *w = all->first, *end = w + all->count; w != end; ++w) {
    bool holds;
    if (w->kind == ENTRY) {
      holds = python.entry(w->object, w->name) == w->expected;
    } else if (w->kind == ELEMENT) {
      holds = python.element(w->object, int64_t(w->name)) == w->expected;
    } else if (w->kind == WORD) {
      holds = ((void**)w->object)[int64_t(w->name)] == w->expected;
    } else if (w->kind == SIZE) {
      holds = python.size(w->object) == int64_t(w->name);
    } else {
      void* now = (w->kind == ITEM ? python.item : python.attribute)(w->object, w->name);
      holds = now == w->expected;
      if (now != nullptr) python.release(now);
    }
    if (!holds) {
      python.forget();
      return 0;
    }
  }
  return 1;
}
