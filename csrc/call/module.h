// What the module offers.
#pragma once

#include <Python.h>

namespace syncfree::call {

// (name, overload, usual): a quicker callable for an operator; `usual` where that is not possible.
PyObject* quick(PyObject* module, PyObject* arguments);

// (name, overload, states, options, number, has_number, failed, usual): an operator whose calls
// have numbers, by a metric's attributes, of which those with these names are arguments, and a
// batch.
PyObject* step(PyObject* module, PyObject* arguments);

// (name, overload, check, number, has_number, failed, usual): the same by a batch and options, of
// which `check` makes the operator's.
PyObject* checked(PyObject* module, PyObject* arguments);

// (name, overload, states, has_gradient, check, usual): an operator by two images, states and
// options, of which `check` makes the operator's.
PyObject* images(PyObject* module, PyObject* arguments);

// (forward, backward, states, slots, usual): an operator that records another as its gradient.
PyObject* differentiable(PyObject* module, PyObject* arguments);

// (usual): the loss of SSIM with its gradient; `usual` where an operator is not known.
PyObject* ssim_loss(PyObject* module, PyObject* arguments);

}  // namespace syncfree::call
