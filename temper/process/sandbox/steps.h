// What `temper-sandbox` (main.cpp) does to itself before it runs a program. Each step ends the
// process, with a message on standard error that names what is missing, where the kernel refuses
// it.
#pragma once

#include <vector>

namespace temper::sandbox {

// The exit status of this program's own failures. A program that it runs may end with 125, too:
// whether there can be a sandbox is asked without one (sandbox.cpp).
constexpr int kNotPossible = 125;

// "temper-sandbox: WHAT SUBJECT: the last system call's error HINT", and the end.
[[noreturn]] void fail(const char* what, const char* subject = "", const char* hint = "");

// New user, mount, pid, ipc and uts namespaces, and unless `network` one of the network, in which
// there is a loopback device alone. Users and groups keep their numbers. The pid namespace is that
// of children.
void enter_namespaces(bool network);

// In the new pid namespace: all mounts read-only, without devices and setuid programs, but these
// directories; a /proc of this namespace; a /dev of null, zero, full, random, urandom and shm.
void make_view(const std::vector<const char*>& writable);

// No capabilities, none to gain by exec, and no system calls that reach beyond namespaces: sockets
// of other families than the internet's, new namespaces, io_uring, keyrings, bpf, perf.
void drop_rights();

}  // namespace temper::sandbox
