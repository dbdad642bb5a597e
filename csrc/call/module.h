// The functions of the module. Each returns a fast callable, or `usual` if that is not possible.
//
// States are a metric's tensors that an operator updates in place; they follow the batch's two
// tensors. Options are the arguments behind the tensors.
#pragma once

#include <Python.h>

namespace syncfree::call {

// (name, overload, usual): for the arguments of an operator, as they are.
PyObject* quick(PyObject* module, PyObject* arguments);

// (name, overload, states, options, number, has_number, failed, usual): for a metric's attributes
// and a batch. `states` and `options` name the attributes that are arguments of the operator, whose
// calls have numbers (numbered_call.h).
PyObject* step(PyObject* module, PyObject* arguments);

// (name, overload, check, number, has_number, failed, usual): the same for a batch and options,
// which `check` turns into the operator's.
PyObject* checked(PyObject* module, PyObject* arguments);

// (name, overload, states, has_gradient, check, usual): for two images, states and options, which
// `check` turns into the operator's.
PyObject* images(PyObject* module, PyObject* arguments);

// (forward, backward, states, slots, usual): for an operator that records another as its gradient.
PyObject* differentiable(PyObject* module, PyObject* arguments);

// (usual): for the loss of SSIM, with its gradient.
PyObject* ssim_loss(PyObject* module, PyObject* arguments);

}  // namespace syncfree::call
