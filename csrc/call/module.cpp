// The module syncfree._call, which is built for one minor version of torch and one of Python.
#include "module.h"

#include "callable.h"

namespace {

PyMethodDef functions[] = {
    {"quick", syncfree::call::quick, METH_VARARGS,
     "A quicker callable for an operator, by name, overload and torch's own callable; that one "
     "where the operator takes or returns what is not known here."},
    {"step", syncfree::call::step, METH_VARARGS,
     "A quicker callable for a dict of attributes and a batch: an operator by name and overload, "
     "names of attributes that are states, and of those that are own options in a tuple, flags and "
     "the last option, what gives a call its number, the flag of calls that get one, what answers "
     "where it raises, and the usual callable."},
    {"checked", syncfree::call::checked, METH_VARARGS,
     "The same for a batch and options, of which those that the operator takes are what the third "
     "argument makes."},
    {"images", syncfree::call::images, METH_VARARGS,
     "A quicker callable for an operator's images, states and options where no gradient is "
     "recorded: the operator by name and overload, how many tensors behind the images are states, "
     "whether it has a gradient, a function (whether images are bytes, the options given) -> the "
     "operator's options, and the usual callable."},
    {"differentiable", syncfree::call::differentiable, METH_VARARGS,
     "A quicker `apply` of an autograd.Function that calls one operator and has another find the "
     "gradients of its first two arguments: names of both, how many tensors behind those two are "
     "states, at which of the second's gradients each result's arrives, and the usual `apply`."},
    {"ssim_loss", syncfree::call::ssim_loss, METH_VARARGS,
     "A quicker `apply` of the loss that SSIM gives, by the usual one."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_call", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__call() {
  return syncfree::call::add_callable_type() ? PyModule_Create(&definition) : nullptr;
}
