// A device guard and hooks for `cuda`, so that a CPU build of PyTorch can run autograd on fake CUDA tensors.
// Autograd asks them which device and stream a gradient lives on; nothing here touches a device.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/FakeGuardImpl.h>

#include <new>

namespace {

// `isBuilt` makes cuda the accelerator that autograd looks for; `isAvailable` stays false, so nobody tries to use it.
struct ImaginaryHooks final : at::CUDAHooksInterface {
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return false; }
};

// The stub that a CPU build made at import is replaced where it lies, so both need one size.
static_assert(sizeof(ImaginaryHooks) == sizeof(at::CUDAHooksInterface));

c10::impl::FakeGuardImpl<c10::DeviceType::CUDA> guard;

}  // namespace

// Installs both once; returns 0 where a guard is there already (a CUDA build has its own, and keeps it).
extern "C" int install_guard() {
  auto& slot = c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::DeviceType::CUDA)];
  if (slot.load() != nullptr) return 0;
  slot.store(&guard);
  new (const_cast<at::CUDAHooksInterface*>(&at::detail::getCUDAHooks())) ImaginaryHooks;
  return 1;
}
