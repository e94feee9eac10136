// How a runtime waits: a thread of its own has a lock and calls an entry point, and the program's
// thread waits for the lock.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <thread>

using Enter = void (*)();

static std::mutex mutex;
static std::shared_mutex shared;
static std::once_flag flag;
static std::atomic_flag spin = ATOMIC_FLAG_INIT;
static std::condition_variable changed;
static std::atomic<bool> held;
static bool entered;

static void hold(Enter enter) {
  held = true;
  enter();
}

static int make_static(Enter enter) {
  static int value = (hold(enter), 1);
  return value;
}

static void run(int how, Enter enter) {
  if (how == 0) {
    std::lock_guard<std::mutex> lock(mutex);
    hold(enter);
  } else if (how == 1) {
    std::unique_lock<std::shared_mutex> lock(shared);
    hold(enter);
  } else if (how == 2) {
    std::shared_lock<std::shared_mutex> lock(shared);
    hold(enter);
  } else if (how == 3) {
    std::call_once(flag, [=] { hold(enter); });
  } else if (how == 4) {
    spin.test_and_set();
    hold(enter);
    spin.clear();
  } else if (how == 5) {
    make_static(enter);
  } else if (how == 6) {
    hold(enter);
    std::lock_guard<std::mutex> lock(mutex);
    entered = true;
    changed.notify_all();
  } else {
    hold(enter);
  }
}

static void wait(int how, std::thread &other) {
  if (how == 0) {
    std::lock_guard<std::mutex> lock(mutex);
  } else if (how == 1) {
    std::shared_lock<std::shared_mutex> lock(shared);
  } else if (how == 2) {
    std::unique_lock<std::shared_mutex> lock(shared);
  } else if (how == 3) {
    std::call_once(flag, [] {});
  } else if (how == 4) {
    while (spin.test_and_set())
      std::this_thread::yield();
  } else if (how == 5) {
    make_static(nullptr);
  } else if (how == 6) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [] { return entered; });
  }
  other.join();
}

extern "C" void wait_for(int how, Enter enter) {
  held = false;
  std::thread other(run, how, enter);
  while (!held)  // without a function that lets the GIL go
    continue;
  wait(how, other);
}

extern "C" int catch_from_once() {
  std::once_flag fails;
  try {
    std::call_once(fails, [] { throw 7; });
  } catch (int number) {
    return number;
  }
  return 0;
}
